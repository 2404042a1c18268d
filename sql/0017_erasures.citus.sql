-- Beside the previous release: yes
-- Erasures, as 0017_erasures.postgres-timescale.sql says. The ids are beside the events of their app.

CREATE TABLE erasures (
  id                 integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id          text         COLLATE "C" NOT NULL UNIQUE,
  app_id             integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  action             text         NOT NULL CHECK (action IN ('delete', 'anonymize')),
  actor              text         NOT NULL,
  reason             text,
  condition_hmac     bytea        NOT NULL,
  sealed_conditions  bytea,
  asked_at           timestamptz  NOT NULL,
  covers_until       timestamptz  NOT NULL,
  finished_at        timestamptz,
  receipt            json
);
CREATE INDEX erasures_of_app ON erasures (app_id, id);
CREATE INDEX erasures_unfinished ON erasures (id) WHERE finished_at IS NULL;
COMMENT ON COLUMN erasures.condition_hmac    IS 'HMAC of the conditions under a key that is derived from SECRET.';
COMMENT ON COLUMN erasures.sealed_conditions IS 'The conditions, sealed, while it runs: it is continued after a restart. NULL once it is finished.';
COMMENT ON COLUMN erasures.covers_until      IS 'Events from this instant on are not looked at.';

-- The ids of erased events, written by the transaction that erases them: the receipt is made of them, and a backup that is restored
-- later loses the same events again.
CREATE TABLE erased_events (
  app_id      integer      NOT NULL,
  erasure_id  integer      NOT NULL,
  id          uuid         NOT NULL,
  created_at  timestamptz  NOT NULL,
  PRIMARY KEY (app_id, erasure_id, created_at, id)
);
DO $$ BEGIN
  EXECUTE 'SELECT create_distributed_table(''erased_events'', ''app_id'', colocate_with => ''events'')';
END $$;
