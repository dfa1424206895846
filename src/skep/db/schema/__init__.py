"""The SQL texts and how they get into a database: catalogue, plan (pure), migration; the server."""
