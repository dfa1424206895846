"""Keys and values as a dictionary: what a call on keys does, said in the fewest words."""

from dataclasses import dataclass, field
from typing import Any

_UNSAID = float("inf")
"""The version of a write that was undone: its result does not say it."""


@dataclass
class Entry:
    value: Any
    version: int
    expires_at: float | None


@dataclass
class KvModel:
    """Live and expired keys of one namespace, at a time that the test moves."""

    now: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)
    last_version: dict[str, int] = field(default_factory=dict)
    """The highest version a key ever had."""

    def live(self, key):
        entry = self.entries.get(key)
        is_live = entry is not None and (entry.expires_at is None or entry.expires_at > self.now)
        return entry if is_live else None

    def call(self, operations, results):
        """Carry out a call and say what its results must be; versions are taken from them."""
        before = dict(self.entries)
        expected = [None] * len(operations)
        single = [at for at, each in enumerate(operations) if "key" in each]
        lost = None
        for at in sorted(single, key=lambda at: (operations[at]["key"].encode(), at)):
            expected[at] = self._step(operations[at], results[at])
            if operations[at].get("required") and not expected[at]["applied"]:
                lost = at if lost is None else min(lost, at)
        if lost is not None:
            self.entries = before
            return {"failedIndex": lost, "kvReason": expected[lost]["reason"]}
        for at, each in enumerate(operations):
            if each["op"] == "getMany":
                expected[at] = self._many(each)
            elif each["op"] == "getPrefix":
                expected[at] = self._prefix(each)
        return expected

    def _step(self, operation, result):
        key, op = operation["key"], operation["op"]
        live = self.live(key)
        now = {"value": live.value, "version": live.version} if live else {}
        if op == "get":
            return {"found": live is not None, **now}
        reason = self._refusal(operation, live)
        shown = now or {"value": None, "version": 0}
        if reason:
            return {"applied": False, "reason": reason, **shown}
        if op == "check":
            return {"applied": True, "version": shown["version"]}
        if op == "delete":
            self.entries.pop(key, None)
            return {"applied": True, **shown}
        value = operation.get("value")
        expires_at = self.now + operation["ttlSeconds"] if "ttlSeconds" in operation else None
        if op == "incr":
            value = (live.value if live else 0) + operation["delta"]
            expires_at = live.expires_at if live else expires_at
        version = result.get("version", _UNSAID)
        assert version > self.last_version.get(key, 0), "a version fell"
        if version is not _UNSAID:
            self.last_version[key] = version
        self.entries[key] = Entry(value, version, expires_at)
        return {"applied": True, "value": value, "version": version}

    def _refusal(self, operation, live):
        op, expect = operation["op"], operation.get("expect")
        if op == "putIfAbsent":
            expect = 0
        if op == "delete" and expect is None and not live:
            return "absent"
        if expect == 0 and live:
            return "exists"
        if expect and not live:
            return "absent"
        if expect and live.version != expect:
            return "version"
        if op == "incr":
            if live and (isinstance(live.value, bool) or not isinstance(live.value, int)):
                return "type"
            total = (live.value if live else 0) + operation["delta"]
            if not operation.get("min", total) <= total <= operation.get("max", total):
                return "limit"
        return None

    def _many(self, operation):
        keys = sorted(set(operation["keys"]), key=str.encode)
        return {
            "rows": [self._row(key) for key in keys if self.live(key)],
            "missing": [key for key in keys if not self.live(key)],
            "truncated": False,
        }

    def _prefix(self, operation):
        after = (operation.get("after") or "").encode()
        keys = [
            key
            for key in sorted(self.entries, key=str.encode)
            if self.live(key) and key.startswith(operation["prefix"]) and key.encode() > after
        ]
        shown = keys[: operation["limit"]]
        is_truncated = len(keys) > len(shown)
        return {
            "rows": [self._row(key) for key in shown],
            "truncated": is_truncated,
            "nextAfter": shown[-1] if is_truncated else None,
        }

    def _row(self, key):
        entry = self.entries[key]
        return {"key": key, "value": entry.value, "version": entry.version}
