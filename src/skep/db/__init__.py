"""PostgreSQL: pool, migrations, SQL texts, and the embedded server."""
