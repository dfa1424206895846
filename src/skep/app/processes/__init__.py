"""The processes of an instance: a supervisor that binds the port, and the workers it restarts."""
