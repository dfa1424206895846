"""Chains, jobs, schedules, and actions on all that match a filter."""
