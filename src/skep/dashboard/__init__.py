"""The dashboard: a web application that brokers serve at `/`.

Its sources are in `dashboard/` of the repository; its build is in `site/` here: wheels carry it,
`make dashboard` makes it in a checkout. This package only knows the files (`site.py`) and the
addresses of the pages; the routes are in `skep.server.routes.dashboard`.
"""
