"""Values and errors that both sides of the wire agree on."""
