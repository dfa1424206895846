"""What Spark runs on: session, Java, Python workers, connections to PostgreSQL."""
