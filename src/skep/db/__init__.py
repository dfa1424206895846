"""PostgreSQL: connections, migrations, SQL texts, and the embedded server."""
