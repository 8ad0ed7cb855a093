"""ACP, the Agent Client Protocol: editors drive an agent over stdio. Needs the extra `acp`."""
