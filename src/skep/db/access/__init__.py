"""Connections and calls: slots that calls share, transactions, sessions, errors by SQLSTATE."""
