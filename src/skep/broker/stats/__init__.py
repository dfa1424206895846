"""Figures over time and at this moment, for charts, scrapes and the dashboard.

Hot paths only add to meters in memory; `rollups` writes them, and charts read nothing else.
"""
