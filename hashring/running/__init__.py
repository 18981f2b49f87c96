"""What loops run on: threads, greenlets of gevent, and threads that nothing can starve."""
