"""What the Python client makes of the vectors of events.json, of refused events, and of a queue that is full, as JSON."""

import json
import sys
from datetime import datetime, timedelta, timezone

sys.path.insert(0, sys.argv[1])
import tidemark_client  # noqa: E402

url, token, vectors = sys.argv[2], sys.argv[3], sys.argv[4]
codes = []


def on_refused(type, payload, code, details):
    codes.append(code)
    raise RuntimeError("The callback fails")


logger = tidemark_client.EventLogger(url, token, linger=0.001, on_refused=on_refused)
accepted = []
with open(vectors) as file:
    for vector in json.load(file):
        payload = json.loads(vector["payload"])
        if "padding" in vector:
            payload["a"] = "x" * vector["padding"]
        try:
            accepted.append(logger.log(vector["type"] * vector.get("repeat", 1), payload))
        except (TypeError, ValueError):
            accepted.append(False)
for _ in range(2):
    logger.log("seen", {"late": True}, created_at=datetime.now(timezone.utc) + timedelta(days=365))
logger.flush(60)
logger.log("seen", {"after": True})
logger.flush(60)
stats = logger.stats
logger.close()
answer = {"accepted": accepted, "codes": codes, "stored": stats.stored, "refused": stats.refused, "waiting": stats.waiting}
for drop in ("newest", "oldest"):
    # Its linger is longer than the test: nothing is sent meanwhile.
    full = tidemark_client.EventLogger(url, "t", max_events=3, drop=drop, linger=60)
    kept = [full.log("seen", {"n": n}) for n in range(5)]
    answer[drop] = [kept, full.stats.waiting, full.stats.dropped]
    full.close(0)
print(json.dumps(answer))
