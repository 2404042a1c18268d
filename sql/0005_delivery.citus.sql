-- Beside the previous release: yes
--
-- Consumers of an app's events in commit order, webhooks and alerts: as 0005_delivery.postgres-timescale.sql says. Consumers and
-- ticks are beside the events of their app, because transactions are numbered by each node. Webhooks and rules are on the coordinator.

SET LOCAL citus.multi_shard_modify_mode = 'sequential';

CREATE TABLE consumers (
  app_id       integer      NOT NULL,
  name         text         COLLATE "C" NOT NULL,
  kind         text         NOT NULL CHECK (kind IN ('consumer', 'webhook')),
  types        text[]       NOT NULL DEFAULT '{}',
  filter       text[]       NOT NULL DEFAULT '{}',
  created_at   timestamptz  NOT NULL DEFAULT now(),
  tick         bigint       NOT NULL,
  position     text         NOT NULL,
  lost_at      timestamptz,
  lease        bigint       NOT NULL DEFAULT 0,
  leased_until timestamptz,
  leased_to    text,
  delivered    bigint       NOT NULL DEFAULT 0,
  PRIMARY KEY (app_id, name)
) WITH (fillfactor = 50);

CREATE TABLE feed_ticks (
  app_id    integer        NOT NULL,
  tick      bigint         NOT NULL,
  at        timestamptz    NOT NULL DEFAULT clock_timestamp(),
  place     bigint         NOT NULL DEFAULT 0,
  snapshot  text           NOT NULL,
  minutes   timestamptz[]  NOT NULL,
  counts    bigint[]       NOT NULL,
  PRIMARY KEY (app_id, tick)
);

CREATE TABLE changed_minutes (
  app_id  integer      NOT NULL,
  bucket  timestamptz  NOT NULL
);
ALTER TABLE changed_minutes REPLICA IDENTITY FULL;

SELECT create_distributed_table(name, 'app_id', colocate_with => 'events')
  FROM unnest('{consumers,feed_ticks,changed_minutes}'::text[]) AS name;

-- Where deliveries of the installation stand, beside installation: a restored one sends nothing until it is told to
-- (name 'deliveries', value 'stopped').

CREATE TABLE webhooks (
  id              integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id       text         COLLATE "C" NOT NULL UNIQUE,
  app_id          integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  url             text         NOT NULL,
  digest          bytea        NOT NULL,
  sealed          bytea        NOT NULL,
  earlier_digest  bytea,
  earlier_sealed  bytea,
  earlier_until   timestamptz,
  is_unordered    boolean      NOT NULL DEFAULT false,
  sends_events    boolean      NOT NULL DEFAULT true,
  state           text         NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
  reason          text,
  created_at      timestamptz  NOT NULL DEFAULT now(),
  failing_since   timestamptz,
  tries           integer      NOT NULL DEFAULT 0,
  next_try_at     timestamptz,
  blocked_by      text,
  delivered       bigint       NOT NULL DEFAULT 0,
  failed          bigint       NOT NULL DEFAULT 0,
  skipped         bigint       NOT NULL DEFAULT 0
);
CREATE INDEX webhooks_of_app ON webhooks (app_id);
COMMENT ON COLUMN webhooks.blocked_by IS 'The message that is tried again; null: none.';
COMMENT ON COLUMN webhooks.sealed IS 'The signing secret, sealed as logging tokens are.';

-- The last tries of each webhook, for people.
CREATE TABLE webhook_tries (
  id          bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  webhook_id  integer      NOT NULL REFERENCES webhooks ON DELETE CASCADE,
  message_id  text         COLLATE "C" NOT NULL,
  type        text         NOT NULL,
  at          timestamptz  NOT NULL,
  status      integer,
  problem     text,
  ms          integer      NOT NULL
);
CREATE INDEX webhook_tries_of_webhook ON webhook_tries (webhook_id, id);

CREATE TABLE alert_rules (
  id            integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id     text         COLLATE "C" NOT NULL UNIQUE,
  app_id        integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  name          text         NOT NULL,
  rule          text         NOT NULL,
  timezone      text         NOT NULL DEFAULT 'UTC',
  webhooks      text[]       NOT NULL DEFAULT '{}',
  emails        text[]       NOT NULL DEFAULT '{}',
  alertmanager  text,
  is_paused     boolean      NOT NULL DEFAULT false,
  created_at    timestamptz  NOT NULL DEFAULT now(),
  evaluated_at  timestamptz,
  problem       text,
  UNIQUE (app_id, name)
);

-- What a rule has seen of a series (a value of a field; the empty text: of all events). A series without a row is quiet.
CREATE TABLE alert_states (
  rule_id     integer      NOT NULL REFERENCES alert_rules ON DELETE CASCADE,
  series      text         COLLATE "C" NOT NULL,
  state       text         NOT NULL CHECK (state IN ('pending', 'firing')),
  since       timestamptz  NOT NULL,
  transition  text         COLLATE "C",
  PRIMARY KEY (rule_id, series)
);

CREATE TABLE alert_transitions (
  id            bigint            GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id     text              COLLATE "C" NOT NULL UNIQUE,
  rule_id       integer           NOT NULL REFERENCES alert_rules ON DELETE CASCADE,
  series        text              COLLATE "C" NOT NULL,
  kind          text              NOT NULL CHECK (kind IN ('firing', 'resolved', 'corrected')),
  at            timestamptz       NOT NULL,
  window_from   timestamptz       NOT NULL,
  window_to     timestamptz       NOT NULL,
  value         double precision,
  threshold     double precision,
  expected      double precision,
  of_transition text              COLLATE "C",
  corrected_at  timestamptz
);
CREATE INDEX alert_transitions_of_rule ON alert_transitions (rule_id, at);

-- Messages of alerts and tests, committed with what they tell of.
CREATE TABLE delivery_messages (
  id           bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id       integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  channel      text         NOT NULL CHECK (channel IN ('webhook', 'mail', 'alertmanager')),
  target       text         NOT NULL,
  message_id   text         COLLATE "C" NOT NULL,
  type         text         NOT NULL,
  body         text         NOT NULL,
  created_at   timestamptz  NOT NULL,
  tries        integer      NOT NULL DEFAULT 0,
  next_try_at  timestamptz  NOT NULL,
  problem      text
);
CREATE INDEX delivery_messages_due ON delivery_messages (channel, target, id);
