"""The same as producer-process.ts with the Python client."""

import os
import sys
import time

sys.path.insert(0, sys.argv[7])
import tidemark_client  # noqa: E402

url, token, folder, first, count, skew = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
real_ns, real = time.time_ns, time.time
time.time_ns = lambda: real_ns() + skew * 1_000_000
time.time = lambda: real() + skew / 1_000
logger = tidemark_client.EventLogger(url, token, queue_folder=folder, linger=0.02, max_batch_events=100)
for n in range(first, first + count):
    if logger.log("queued", {"n": n, "real": real_ns() // 1_000_000}):
        os.write(1, b"%d\n" % n)
    if n % 50 == 49:
        time.sleep(0.001)
os.write(1, b"left %d\n" % logger.close(60))
