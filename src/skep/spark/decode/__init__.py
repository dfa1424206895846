"""Segments to rows: Arrow in, Arrow out; payloads are parsed only if members are wanted."""
