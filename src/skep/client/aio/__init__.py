"""The client on asyncio: what the client is, and the source of the blocking one."""
