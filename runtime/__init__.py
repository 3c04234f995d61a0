"""The runtime: engine, scheduler, model runner, sampling."""
