"""httpx's functions with more patience: theirs give up after five seconds, which a busy machine takes."""

from functools import partial

import httpx

SECONDS = 60.0

delete = partial(httpx.delete, timeout=SECONDS)
get = partial(httpx.get, timeout=SECONDS)
post = partial(httpx.post, timeout=SECONDS)
put = partial(httpx.put, timeout=SECONDS)
request = partial(httpx.request, timeout=SECONDS)
