"""Workers that share sessions through PostgreSQL alone, with Absurd's queue. Needs the extra `absurd`."""
