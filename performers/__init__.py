"""Who does the work: models, tools, stores. Everything here may touch the world; nothing here decides."""
