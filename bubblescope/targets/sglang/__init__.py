"""SGLang's real engine, in processes of its own, reached through its plugin entry point."""
