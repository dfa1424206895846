"""The duplicate cache: proves that a key is absent, in bounded memory. It never decides alone."""
