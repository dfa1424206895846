"""The log as a Spark sink: tasks stage finished segments, the driver commits them once."""
