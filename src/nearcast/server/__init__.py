"""The live server: messages and subscriptions over HTTP, events as streams and webhooks."""
