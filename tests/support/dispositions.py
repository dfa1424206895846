"""Let tests start programs that hear every signal, however the tests themselves were started.

`nohup` ignores SIGHUP, and a shell ignores SIGINT and SIGQUIT for what it runs in the background.
Programs inherit what is ignored, but no handler.
"""

import signal

INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def stop_handing_down_ignored_signals():
    """Replace what is ignored by a handler that does nothing."""
    for number in INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
