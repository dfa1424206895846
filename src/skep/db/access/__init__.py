"""Connections and calls: slots, transactions, sessions, notifications, errors by SQLSTATE."""
