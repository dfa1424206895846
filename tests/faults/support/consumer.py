"""A consumer in a process of its own, to be killed or stopped by a test.

It takes a batch and prints it as a line of JSON. Every line it then reads is the position of a
message to complete; it prints the result of each.
"""

import json
import sys
import urllib.request

ACK_MEMBERS = ("transactionId", "partitionId", "leaseId", "consumerGroup")
PATIENCE_S = 30


def call(url, members=None):
    body = None if members is None else json.dumps(members).encode()
    with urllib.request.urlopen(url, body, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def main(url, pop_path):
    messages = call(url + pop_path)["messages"]
    sys.stdout.write(json.dumps(messages) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        message = messages[int(line)]
        members = {name: message[name] for name in ACK_MEMBERS}
        sys.stdout.write(json.dumps(call(f"{url}/api/v1/ack", members)[0]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
