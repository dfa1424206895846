"""Chains from any process: start, wait, inspect, control one or all that match."""
