-- The schema of the first release begins here: what every engine has in ordinary tables. Events and their counts are in 0002, series
-- of declared fields in 0003, and what lies beside the events of its app in 0004.
--
-- Public identifiers are opaque text; the integers stay inside the database.

CREATE TABLE installation (
  name   text PRIMARY KEY,
  value  text NOT NULL
);
COMMENT ON TABLE installation IS 'Facts about this installation: the engine that it was migrated for, the fingerprint of SECRET.';

-- People: their accounts, sessions and links, what they may do in which app, and what was changed by whom.
--
-- Of everything that lets somebody in (sessions, links) only a SHA-256 is kept; of passwords an argon2id hash.

CREATE TABLE users (
  id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id        text        COLLATE "C" NOT NULL UNIQUE,
  email            text        NOT NULL,
  email_key        text        COLLATE "C" NOT NULL UNIQUE,
  password_hash    text        NOT NULL,
  email_verified_at  timestamptz,
  created_at       timestamptz NOT NULL DEFAULT now(),
  break_glass      boolean     NOT NULL DEFAULT false,
  suspended_at     timestamptz
);
COMMENT ON COLUMN users.email IS 'As it was typed; mail goes here.';
COMMENT ON COLUMN users.email_key IS 'In lower case and NFC: what tells one account from another.';
COMMENT ON COLUMN users.email_verified_at IS 'When the owner of the address followed a link that was mailed there and shown to nobody else, or an operator vouched for it.';
COMMENT ON COLUMN users.break_glass IS 'Whether the account may sign in by its password where OIDC_ONLY is set. Only the command line makes such accounts.';
COMMENT ON COLUMN users.suspended_at IS 'Since when the account cannot sign in, and its resource tokens are refused; NULL: it is not suspended.';

CREATE TABLE apps (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  name        text        NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  removed_at       timestamptz,
  removed_id       text        COLLATE "C" UNIQUE,
  removed_members  json,
  suspended_at     timestamptz
);
-- An app that was removed waits in the bin for seven days, under another public id and without members.
COMMENT ON COLUMN apps.removed_at      IS 'Since when it is in the bin; NULL: it is not.';
COMMENT ON COLUMN apps.removed_id      IS 'Its public id before that, which it gets back.';
COMMENT ON COLUMN apps.removed_members IS 'Its rows of app_members before that.';
COMMENT ON COLUMN apps.suspended_at    IS 'Since when nothing is written to it or read from it; NULL: it is not suspended.';

-- Limits of single apps, above or below those that the settings give to all.

CREATE TABLE app_limits (
  app_id             integer  PRIMARY KEY REFERENCES apps ON DELETE CASCADE,
  create_per_minute  integer  CHECK (create_per_minute > 0),
  bytes_per_day      bigint   CHECK (bytes_per_day > 0),
  types              integer  CHECK (types > 0)
);
COMMENT ON TABLE app_limits IS 'Apps that have a limit of their own. NULL: what the settings say.';
COMMENT ON COLUMN app_limits.bytes_per_day IS 'Bytes of payloads that producers may send on a UTC day.';

CREATE TABLE event_types (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        COLLATE "C" NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  hidden_at   timestamptz,
  annotates_at timestamptz,
  UNIQUE (app_id, name)
);
COMMENT ON COLUMN event_types.hidden_at IS 'Since when charts leave the type out; NULL: they show it.';
COMMENT ON COLUMN event_types.annotates_at IS 'Since when charts mark each event of the type, as an annotation; NULL: they do not.';

-- Producers: the programs that write an app's events, each with a logging token of its own. The first one has the token that the app
-- was created with.

CREATE TABLE producers (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  revoked_at  timestamptz,
  created_by  integer     REFERENCES users ON DELETE SET NULL
);
CREATE INDEX producers_of_app ON producers (app_id);
CREATE INDEX producers_of_user ON producers (created_by) WHERE created_by IS NOT NULL;

CREATE TABLE logging_tokens (
  digest      bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  sealed      bytea       NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz,
  producer_id integer     REFERENCES producers ON DELETE CASCADE,
  revoked_from timestamptz
);
CREATE INDEX logging_tokens_of_app ON logging_tokens (app_id);
CREATE INDEX logging_tokens_of_producer ON logging_tokens (producer_id) WHERE producer_id IS NOT NULL;
COMMENT ON COLUMN logging_tokens.sealed IS 'The token under AES-256-GCM, so that it can be shown again.';
COMMENT ON COLUMN logging_tokens.expires_at IS 'Set by a rotation: the end of the old token''s grace. NULL for the current token.';
COMMENT ON COLUMN logging_tokens.producer_id  IS 'NULL: the app''s first producer, which has no row.';
COMMENT ON COLUMN logging_tokens.revoked_from IS 'The end that the token had before it was revoked, for an undo; infinity: none.';

CREATE TABLE resource_tokens (
  id            integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id     text        COLLATE "C" NOT NULL UNIQUE,
  digest        bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  name          text        NOT NULL CHECK (name <> ''),
  created_at    timestamptz NOT NULL DEFAULT now(),
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz,
  created_by    integer     REFERENCES users ON DELETE SET NULL,
  revoked_by    integer
);
CREATE INDEX resource_tokens_of_user ON resource_tokens (created_by) WHERE created_by IS NOT NULL;
COMMENT ON COLUMN resource_tokens.created_by IS 'The account that made it. NULL: the command line, or an account that is gone.';
COMMENT ON COLUMN resource_tokens.revoked_by IS 'The account that revoked it, by its internal id; 0: the command line, or several. NULL: it is not revoked, or for good, because its creator''s membership ended.';

CREATE TABLE resource_token_apps (
  token_id  integer NOT NULL REFERENCES resource_tokens ON DELETE CASCADE,
  app_id    integer NOT NULL REFERENCES apps ON DELETE CASCADE,
  PRIMARY KEY (token_id, app_id)
);
CREATE INDEX resource_token_apps_of_app ON resource_token_apps (app_id);

-- Browser keys: they may be public. A key writes the named types of one app from pages of the named origins.

CREATE TABLE browser_keys (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  digest      bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  sealed      bytea       NOT NULL,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        NOT NULL CHECK (name <> ''),
  types       text[]      NOT NULL CHECK (cardinality(types) > 0),
  origins     text[]      NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  revoked_at  timestamptz,
  created_by  integer     REFERENCES users ON DELETE SET NULL
);
CREATE INDEX browser_keys_of_app ON browser_keys (app_id);
CREATE INDEX browser_keys_of_user ON browser_keys (created_by) WHERE created_by IS NOT NULL;
COMMENT ON COLUMN browser_keys.sealed  IS 'The key under AES-256-GCM, so that it can be shown again.';
COMMENT ON COLUMN browser_keys.types   IS 'Names of the event types that the key may write.';
COMMENT ON COLUMN browser_keys.origins IS 'Origins whose pages may use the key, as browsers send them; none: no page may.';

-- Management tokens: they read, or apply, the configuration of the whole installation.

CREATE TABLE management_tokens (
  id            integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id     text         COLLATE "C" NOT NULL UNIQUE,
  digest        bytea        NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  name          text         NOT NULL CHECK (name <> ''),
  scope         text         NOT NULL CHECK (scope IN ('read', 'apply')),
  created_at    timestamptz  NOT NULL DEFAULT now(),
  expires_at    timestamptz  NOT NULL,
  revoked_at    timestamptz,
  last_used_at  timestamptz
);
COMMENT ON COLUMN management_tokens.digest IS 'SHA-256 of the token, which is shown once.';

-- Times of sessions and links are the service's, not the database's: their lifetimes are one clock's business.
CREATE TABLE sessions (
  digest        bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  user_id       integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at    timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL,
  handle        text        COLLATE "C" NOT NULL DEFAULT 'ses_' || left(replace(gen_random_uuid()::text, '-', ''), 20),
  browser       text,
  system        text,
  address       text
);
CREATE INDEX sessions_of_user ON sessions (user_id);
CREATE UNIQUE INDEX sessions_by_handle ON sessions (handle);
COMMENT ON COLUMN sessions.handle  IS 'The public id, which has nothing to do with the cookie.';
COMMENT ON COLUMN sessions.address IS 'Where the sign-in came from, as far as SESSION_ADDRESSES lets it be stored.';

-- Sign-in by an OIDC issuer: which identities are which accounts, and the access that an identity's groups give.

-- An identity is the issuer and the subject, never the email address: an issuer may give an address to another person.
CREATE TABLE user_identities (
  issuer           text         COLLATE "C" NOT NULL,
  subject          text         COLLATE "C" NOT NULL,
  user_id          integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at       timestamptz  NOT NULL DEFAULT now(),
  last_sign_in_at  timestamptz,
  PRIMARY KEY (issuer, subject),
  UNIQUE (user_id, issuer)
);
COMMENT ON TABLE user_identities IS 'Accounts by (issuer, subject) of the ID tokens that they sign in with.';

CREATE TABLE oidc_sessions (
  digest   bytea  PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  issuer   text   COLLATE "C" NOT NULL,
  subject  text   COLLATE "C" NOT NULL,
  sid      text   COLLATE "C"
);
CREATE INDEX oidc_sessions_of_identity ON oidc_sessions (issuer, subject);
CREATE INDEX oidc_sessions_by_sid ON oidc_sessions (issuer, sid) WHERE sid IS NOT NULL;
COMMENT ON TABLE oidc_sessions IS 'Sessions that began at an issuer, which may end them (back-channel logout).';
COMMENT ON COLUMN oidc_sessions.sid IS 'The claim "sid" of the ID token: the session at the issuer.';

CREATE TABLE used_logout_tokens (
  digest      bytea        PRIMARY KEY CHECK (octet_length(digest) = 32),
  expires_at  timestamptz  NOT NULL
);
COMMENT ON TABLE used_logout_tokens IS 'SHA-256 of the claim "jti" of logout tokens, for as long as the token would be accepted.';

-- One-time links. A sign-up waits in its link: there is no account, and nothing to learn, until the email is verified.
CREATE TABLE account_links (
  digest         bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  purpose        text        NOT NULL CHECK (purpose IN ('setup', 'sign-up', 'verify-email', 'reset-password')),
  user_id        integer     REFERENCES users ON DELETE CASCADE,
  email          text,
  password_hash  text,
  verifies_email   boolean     NOT NULL DEFAULT false,
  expires_at     timestamptz NOT NULL,
  CHECK (purpose = 'setup' OR (purpose = 'sign-up' AND email IS NOT NULL AND password_hash IS NOT NULL) OR user_id IS NOT NULL)
);
CREATE INDEX account_links_of_user ON account_links (user_id) WHERE user_id IS NOT NULL;
COMMENT ON COLUMN account_links.verifies_email IS 'Whether following it verifies the address: it was mailed there and shown to nobody else, or an operator handed it over.';

CREATE TABLE app_members (
  app_id       integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  user_id      integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  role         text        NOT NULL CHECK (role IN ('owner', 'maintainer', 'viewer')),
  added_at     timestamptz NOT NULL DEFAULT now(),
  invited_key  text        COLLATE "C",
  opened_at    timestamptz,
  PRIMARY KEY (app_id, user_id)
);
CREATE INDEX app_members_of_user ON app_members (user_id);
COMMENT ON COLUMN app_members.invited_key IS 'The key of the address that the accepted invitation was for, which may be another one than the account''s. NULL where the member was added without a link.';
COMMENT ON COLUMN app_members.opened_at IS 'When the member accepted the invitation or opened the app first; NULL: not yet, and alerts mail nothing to them, unless they own it.';

CREATE TABLE group_mappings (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  group_name  text         COLLATE "C" NOT NULL CHECK (group_name <> ''),
  app_id      integer      REFERENCES apps ON DELETE CASCADE,
  role        text         NOT NULL CHECK (role IN ('owner', 'maintainer', 'viewer')),
  created_at  timestamptz  NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX group_mappings_of_app ON group_mappings (group_name, app_id) WHERE app_id IS NOT NULL;
CREATE UNIQUE INDEX group_mappings_of_all ON group_mappings (group_name) WHERE app_id IS NULL;
COMMENT ON COLUMN group_mappings.app_id IS 'NULL: every app, also those that are made later.';

CREATE TABLE group_grants (
  app_id      integer  NOT NULL REFERENCES apps ON DELETE CASCADE,
  user_id     integer  NOT NULL REFERENCES users ON DELETE CASCADE,
  role        text     NOT NULL CHECK (role IN ('owner', 'maintainer', 'viewer')),
  own_role    text     CHECK (own_role IN ('owner', 'maintainer', 'viewer')),
  group_name  text     COLLATE "C" NOT NULL,
  suspended   boolean  NOT NULL DEFAULT false,
  PRIMARY KEY (app_id, user_id)
);
CREATE INDEX group_grants_of_user ON group_grants (user_id);
COMMENT ON TABLE group_grants IS 'Memberships that an account has by a group. The rows of app_members are what counts; these say what they become without it.';
COMMENT ON COLUMN group_grants.role IS 'The role that app_members got by the group. Another one there was given by a person since.';
COMMENT ON COLUMN group_grants.own_role IS 'The role that a person had given before; NULL: none, so the membership ends with the group.';
COMMENT ON COLUMN group_grants.suspended IS 'Set by a back-channel logout until the next sign-in says which groups are left: no access meanwhile, also for tokens.';

CREATE TABLE invitations (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  digest      bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  email       text        NOT NULL,
  email_key   text        COLLATE "C" NOT NULL,
  role        text        NOT NULL CHECK (role IN ('maintainer', 'viewer')),
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  UNIQUE (app_id, email_key)
);

-- Who changed what. Rows outlive the app and the account that they tell of, hence no foreign keys. Entries of the installation are neither
-- an app's nor an account's.
CREATE TABLE audit_entries (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id      integer,
  at          timestamptz NOT NULL DEFAULT now(),
  user_id     integer,
  actor       text        NOT NULL,
  action      text        NOT NULL,
  details     jsonb       NOT NULL,
  account_id  integer
);
CREATE INDEX audit_entries_of_app ON audit_entries (app_id, id);
CREATE INDEX audit_entries_of_account ON audit_entries (account_id, id) WHERE account_id IS NOT NULL;
COMMENT ON COLUMN audit_entries.account_id IS 'The account that was changed; NULL: an app was.';
COMMENT ON COLUMN audit_entries.actor IS 'The email that the account had then, or "command line".';

CREATE TABLE audit_log_position (
  id             boolean  PRIMARY KEY DEFAULT true CHECK (id),
  last_entry_id  bigint   NOT NULL
);
COMMENT ON TABLE audit_log_position IS 'At most one row: the last of audit_entries that was written to AUDIT_LOG.';

-- Apps whose events are still to be removed: the app itself is gone at once, its rows in the background.
CREATE TABLE deleted_apps (
  app_id      integer     PRIMARY KEY,
  deleted_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE known_devices (
  user_id       integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  digest        bytea        NOT NULL CHECK (octet_length(digest) = 32),
  last_seen_at  timestamptz  NOT NULL,
  PRIMARY KEY (user_id, digest)
);
COMMENT ON COLUMN known_devices.digest IS 'HMAC of account, browser, system and network, under a key that SECRET is the source of.';

CREATE TABLE second_factors (
  user_id      integer      PRIMARY KEY REFERENCES users ON DELETE CASCADE,
  sealed       bytea        NOT NULL,
  started_at   timestamptz  NOT NULL,
  enabled_at   timestamptz,
  last_step    bigint       NOT NULL DEFAULT 0,
  wrong_codes  integer      NOT NULL DEFAULT 0
);
COMMENT ON COLUMN second_factors.sealed IS 'The secret of the codes (RFC 6238), sealed with AES-256-GCM for this account.';
COMMENT ON COLUMN second_factors.enabled_at IS 'NULL: set up and not confirmed by a code yet, so no sign-in asks for one.';
COMMENT ON COLUMN second_factors.last_step IS 'The step of the last accepted code: no code of this or an earlier one is accepted again.';
COMMENT ON COLUMN second_factors.wrong_codes IS 'Wrong codes in a row, counted over all processes and restarts; a right one ends them.';

CREATE TABLE recovery_codes (
  user_id  integer  NOT NULL REFERENCES users ON DELETE CASCADE,
  digest   bytea    NOT NULL CHECK (octet_length(digest) = 32),
  PRIMARY KEY (user_id, digest)
);

-- Answers to requests with an Idempotency-Key: each is written by the very transaction that stores the request's events,
-- so that there are both or neither, and a repeat within 24 hours gets the first answer again.
--
-- Times are the service's, not the database's: how long a key lives is one clock's business. Rows outlive their app for
-- a day at most, hence no foreign key, which every keyed event would pay for.

CREATE TABLE idempotency_keys (
  app_id       integer      NOT NULL,
  key_digest   bytea        NOT NULL CHECK (octet_length(key_digest) = 32),
  body_digest  bytea        NOT NULL CHECK (octet_length(body_digest) = 32),
  status       smallint     NOT NULL,
  answer       text         NOT NULL,
  created_at   timestamptz  NOT NULL,
  PRIMARY KEY (app_id, key_digest)
);
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
COMMENT ON COLUMN idempotency_keys.body_digest IS 'SHA-256 of the path and the body: the same key with another body is a mistake of the producer.';

-- Readers lock this table (ACCESS SHARE) before they take a snapshot of events and counts, and keep the lock until they are
-- done. What changes where rows are found without regard to older snapshots, as recompression on TimescaleDB does, takes it
-- in ACCESS EXCLUSIVE mode just before its commit: so no snapshot is in use at that moment. It has no rows.
CREATE TABLE snapshot_lock ();
COMMENT ON TABLE snapshot_lock IS 'Readers of events and counts lock it before their snapshot; recompression locks them out at its commit.';

-- JSON Schemas that owners attach to event types, and what the checks of their payloads have found since.

CREATE TABLE type_schemas (
  type_id            integer      PRIMARY KEY REFERENCES event_types ON DELETE CASCADE,
  mode               text         NOT NULL CHECK (mode IN ('warn', 'refuse')),
  schema             text         NOT NULL,
  digest             text         COLLATE "C" NOT NULL,
  set_at             timestamptz  NOT NULL DEFAULT now(),
  suspended_at       timestamptz,
  suspended_reason   text,
  checked            bigint       NOT NULL DEFAULT 0,
  violations         bigint       NOT NULL DEFAULT 0,
  unchecked          bigint       NOT NULL DEFAULT 0,
  last_violation_at  timestamptz,
  last_path          text,
  last_message       text
);
COMMENT ON COLUMN type_schemas.digest IS 'SHA-256 of the schema in hex: compiled schemas and found violations belong to this text.';
COMMENT ON COLUMN type_schemas.suspended_at IS 'Since when payloads are not checked, because their checks took too long. Setting a schema ends it.';

-- Rules of event types that remove or replace values of payloads before anything stores them.

CREATE TABLE redaction_rules (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type_id     integer      NOT NULL REFERENCES event_types ON DELETE CASCADE,
  path        text         COLLATE "C" NOT NULL,
  action      text         NOT NULL CHECK (action IN ('drop', 'mask', 'hmac')),
  created_at  timestamptz  NOT NULL DEFAULT now(),
  UNIQUE (type_id, path)
);
COMMENT ON COLUMN redaction_rules.path IS 'The names that lead to the value, from the top of the payload on: a JSON array of strings.';

-- What apps and tokens use. Processes add what they have counted every few seconds; the rows of minutes are removed after two
-- hours. No foreign keys: a check of each row would lock the app, and ids are never given again.
CREATE TABLE usage_days (
  app_id  integer NOT NULL,
  day     date    NOT NULL,
  events  bigint  NOT NULL,
  bytes   bigint  NOT NULL,
  PRIMARY KEY (app_id, day)
);
COMMENT ON TABLE usage_days IS 'Events that arrived over HTTP on a day (UTC), and the bytes of their payloads.';

CREATE TABLE app_requests (
  app_id    integer     NOT NULL,
  minute    timestamptz NOT NULL,
  code      text        COLLATE "C" NOT NULL,
  requests  bigint      NOT NULL,
  PRIMARY KEY (app_id, minute, code)
) WITH (fillfactor = 70);
COMMENT ON COLUMN app_requests.code IS 'Of the refusal; empty for requests that were accepted.';
CREATE INDEX app_requests_by_age ON app_requests (minute);

CREATE TABLE token_requests (
  token_id  integer     NOT NULL,
  minute    timestamptz NOT NULL,
  code      text        COLLATE "C" NOT NULL,
  requests  bigint      NOT NULL,
  PRIMARY KEY (token_id, minute, code)
) WITH (fillfactor = 70);
CREATE INDEX token_requests_by_age ON token_requests (minute);

-- Of the app's first producer the id is 0.
CREATE TABLE producer_uses (
  app_id         integer     NOT NULL,
  producer_id    integer     NOT NULL,
  first_used_at  timestamptz NOT NULL,
  last_used_at   timestamptz NOT NULL,
  PRIMARY KEY (app_id, producer_id)
) WITH (fillfactor = 70);

CREATE TABLE producer_requests (
  app_id       integer     NOT NULL,
  producer_id  integer     NOT NULL,
  minute       timestamptz NOT NULL,
  requests     bigint      NOT NULL,
  events       bigint      NOT NULL,
  refused      bigint      NOT NULL,
  PRIMARY KEY (app_id, producer_id, minute)
) WITH (fillfactor = 70);
CREATE INDEX producer_requests_by_age ON producer_requests (minute);

-- The latest requests that were refused although they had a valid logging token or browser key: what a producer has to correct.
CREATE TABLE refused_requests (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id       integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  producer_id  integer,
  at           timestamptz NOT NULL,
  route        text        NOT NULL,
  code         text        NOT NULL,
  details      text        NOT NULL,
  body         text,
  is_cut       boolean     NOT NULL
);
CREATE INDEX refused_requests_of_app ON refused_requests (app_id, at, id);
CREATE INDEX refused_requests_by_age ON refused_requests (at);
COMMENT ON COLUMN refused_requests.producer_id IS 'Internal id; 0: the app''s first producer; NULL: a browser key.';
COMMENT ON COLUMN refused_requests.body IS 'The beginning of the body, with what is redacted masked; NULL: it is not shown.';

-- How late events arrive, by type: alerts say by it which delay they need. Counted as usage is, and removed after a day.
CREATE TABLE late_events (
  type_id  integer     NOT NULL,
  hour     timestamptz NOT NULL,
  up_to    smallint    NOT NULL,
  events   bigint      NOT NULL,
  PRIMARY KEY (type_id, hour, up_to)
) WITH (fillfactor = 70);
COMMENT ON COLUMN late_events.hour  IS 'In which they arrived.';
COMMENT ON COLUMN late_events.up_to IS 'Minutes between their own time and their arrival, at most.';
CREATE INDEX late_events_by_age ON late_events (hour);

-- Views of an app's page that members have saved, and what happened at a time: deployments and incidents.
CREATE TABLE saved_views (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text         COLLATE "C" NOT NULL UNIQUE,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text         COLLATE "C" NOT NULL,
  search      text         NOT NULL,
  saved_by    integer      REFERENCES users ON DELETE SET NULL,
  saved_at    timestamptz  NOT NULL DEFAULT now(),
  UNIQUE (app_id, name)
);
COMMENT ON COLUMN saved_views.search IS 'The query of the page''s address, without the question mark.';

-- Boards: saved views of an app on one page.

CREATE TABLE boards (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text         COLLATE "C" NOT NULL UNIQUE,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text         COLLATE "C" NOT NULL,
  created_by  integer      REFERENCES users ON DELETE SET NULL,
  created_at  timestamptz  NOT NULL DEFAULT now(),
  UNIQUE (app_id, name)
);

CREATE TABLE board_views (
  board_id  integer   NOT NULL REFERENCES boards ON DELETE CASCADE,
  view_id   integer   NOT NULL REFERENCES saved_views ON DELETE CASCADE,
  position  smallint  NOT NULL,
  PRIMARY KEY (board_id, view_id)
);
CREATE INDEX board_views_of_view ON board_views (view_id);
COMMENT ON COLUMN board_views.position IS 'Charts are shown in this order. A view that is removed leaves its boards.';

-- Shares: a saved view or a board for anyone with the link.

CREATE TABLE shares (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id      text         COLLATE "C" NOT NULL UNIQUE,
  digest         bytea        NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  view_id        integer      REFERENCES saved_views ON DELETE CASCADE,
  board_id       integer      REFERENCES boards ON DELETE CASCADE,
  created_by     integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at     timestamptz  NOT NULL DEFAULT now(),
  range          text         NOT NULL,
  timezone       text         NOT NULL,
  filters        text[]       NOT NULL,
  list           text         NOT NULL CHECK (list IN ('none', 'times', 'payloads')),
  password_hash  text,
  ends_at        timestamptz,
  origins        text[]       NOT NULL,
  CHECK (num_nonnulls(view_id, board_id) = 1)
);
CREATE INDEX shares_of_app ON shares (app_id);
CREATE INDEX shares_of_view ON shares (view_id);
CREATE INDEX shares_of_board ON shares (board_id);
CREATE INDEX shares_of_user ON shares (created_by);
COMMENT ON COLUMN shares.digest IS 'SHA-256 of the secret of the link, which is shown once.';
COMMENT ON COLUMN shares.created_by IS 'The share is refused while this account may not make it: suspended, no member, or a viewer.';
COMMENT ON COLUMN shares.range IS 'As addresses of the dashboard have it: 7d moves, two instants stay.';
COMMENT ON COLUMN shares.origins IS 'Sites that may show it in a frame.';

-- Weekly digests: the numbers of an app, or of one of its boards, by mail, for each member who asks for them.

CREATE TABLE digests (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id      integer      REFERENCES apps ON DELETE CASCADE,
  user_id     integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  stop_token  text         COLLATE "C" NOT NULL UNIQUE,
  timezone    text         NOT NULL,
  next_at     timestamptz  NOT NULL,
  board_id    integer      REFERENCES boards ON DELETE CASCADE,
  UNIQUE (app_id, user_id),
  CONSTRAINT digests_of_one CHECK (num_nonnulls(app_id, board_id) = 1),
  CONSTRAINT digests_of_board UNIQUE (board_id, user_id)
);
CREATE INDEX digests_due ON digests (next_at);
COMMENT ON COLUMN digests.stop_token IS 'Is in each mail, and ends the digest. It opens nothing else.';
COMMENT ON COLUMN digests.next_at IS 'The next Monday at 08:00 in the time zone.';
COMMENT ON COLUMN digests.board_id IS 'A digest is of an app or of one of its boards: the other one is null.';

CREATE TABLE annotations (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text         COLLATE "C" NOT NULL UNIQUE,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  kind        text         COLLATE "C" NOT NULL CHECK (kind IN ('deployment', 'incident', 'note')),
  starts_at   timestamptz  NOT NULL,
  ends_at     timestamptz  CHECK (ends_at > starts_at),
  text        text         NOT NULL,
  by_token    boolean      NOT NULL,
  created_by  integer      REFERENCES users ON DELETE SET NULL,
  created_at  timestamptz  NOT NULL DEFAULT now()
);
-- One that is sent again is the same one.
CREATE UNIQUE INDEX annotations_once ON annotations (app_id, starts_at, kind, coalesce(ends_at, '-infinity'), md5(text));
COMMENT ON COLUMN annotations.ends_at IS 'NULL: it happened at one instant.';
COMMENT ON COLUMN annotations.by_token IS 'Whether a logging token wrote it. The oldest of these make room for new ones.';

-- Fields of payloads that owners have declared, on every engine.
-- The generation of the newest field. The row's lock orders declarations: who sees a generation sees all fields up to it.
CREATE TABLE field_generation (
  only_row    boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  generation  integer  NOT NULL
);
INSERT INTO field_generation (generation) VALUES (0);

CREATE TABLE declared_fields (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  path           text         COLLATE "C" NOT NULL,
  kind           text         NOT NULL CHECK (kind IN ('value', 'number', 'distinct')),
  created_at     timestamptz  NOT NULL DEFAULT now(),
  generation     integer      NOT NULL DEFAULT 0,
  complete_from  timestamptz,
  backfill       boolean      NOT NULL DEFAULT false,
  removed_at     timestamptz,
  known_values   integer      NOT NULL DEFAULT 0,
  new_values     integer      NOT NULL DEFAULT 0,
  new_values_on  date         NOT NULL DEFAULT '-infinity',
  full_since     timestamptz,
  by_path        text         COLLATE "C" NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX declared_fields_once ON declared_fields (app_id, path, coalesce(type_id, 0), kind, by_path) WHERE removed_at IS NULL;
COMMENT ON COLUMN declared_fields.type_id       IS 'The type whose events have the field; NULL: events of all types.';
COMMENT ON COLUMN declared_fields.path          IS 'The names that lead to the value, from the top of the payload on: a JSON array of strings.';
COMMENT ON COLUMN declared_fields.generation    IS '0 until maintenance gives the field one: then its counting begins.';
COMMENT ON COLUMN declared_fields.complete_from IS 'From this minute on the counts are complete, but for uncounted minutes. NULL: not yet counted.';
COMMENT ON COLUMN declared_fields.backfill      IS 'Whether complete_from is to move back to the first event.';
COMMENT ON COLUMN declared_fields.removed_at    IS 'Set by a removal: maintenance deletes the counts, then the row.';
COMMENT ON COLUMN declared_fields.known_values  IS 'Values that have ids; new_values of them since the start of the UTC day new_values_on.';
COMMENT ON COLUMN declared_fields.full_since    IS 'When a value was counted as "other" for the first time, because there were too many.';
COMMENT ON COLUMN declared_fields.by_path       IS 'Another path by whose values the field is counted apart, as path has it; empty: none.';

-- Retention of single apps and types as it is wanted; app_boundaries (0004) has from where on their events can be read.
CREATE TABLE retention_rules (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  days           integer      CHECK (days >= 0),
  readable_from  timestamptz  NOT NULL
);
CREATE UNIQUE INDEX retention_rules_once ON retention_rules (app_id, coalesce(type_id, 0));
CREATE INDEX retention_rules_of_type ON retention_rules (type_id) WHERE type_id IS NOT NULL;
COMMENT ON COLUMN retention_rules.type_id       IS 'NULL: all types of the app that have no row of their own.';
COMMENT ON COLUMN retention_rules.days          IS 'For how many days events are kept; 0: for as long as the table retention lets them be; NULL: no longer a rule of its own, but what it has hidden stays so.';
COMMENT ON COLUMN retention_rules.readable_from IS 'As in app_boundaries.';

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
  skipped         bigint       NOT NULL DEFAULT 0,
  created_by      integer,
  stopped_after   bigint
);
CREATE INDEX webhooks_of_app ON webhooks (app_id);
COMMENT ON COLUMN webhooks.blocked_by IS 'The message that is tried again; null: none.';
COMMENT ON COLUMN webhooks.sealed IS 'The signing secret, sealed as logging tokens are.';
-- No reference: the id of an account that is gone belongs to no member, so that what it made sends nothing.
COMMENT ON COLUMN webhooks.created_by IS 'The account that it sends for: nothing while that may not use the app. NULL: the operator.';
COMMENT ON COLUMN webhooks.stopped_after IS 'The last transition of an alert before it was paused or disabled; NULL: it has been told what came later.';

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
  changed_at    timestamptz,
  created_by    integer,
  UNIQUE (app_id, name)
);
COMMENT ON COLUMN alert_rules.changed_at IS 'Since when the rule says what it says; NULL: since it was added. Earlier minutes are not judged by it.';
COMMENT ON COLUMN alert_rules.created_by IS 'The account that its Alertmanager is told for: nothing while that may not use the app. NULL: the operator.';

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
  problem      text,
  failing_since timestamptz
);
CREATE INDEX delivery_messages_due ON delivery_messages (channel, target, id);
-- Who is sent to next is looked for by the oldest message of each target.
CREATE INDEX delivery_messages_of_app ON delivery_messages (app_id, channel, target, id);
COMMENT ON COLUMN delivery_messages.failing_since IS 'The first of the failed tries; NULL: none has failed.';

-- Erasures: events that were removed, or whose values were replaced, on request, with a receipt.

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

-- Days of apps that were archived as Parquet.

CREATE TABLE archived_days (
  app_id       integer      NOT NULL,
  day          date         NOT NULL,
  counted      bigint       NOT NULL,
  events       bigint       NOT NULL,
  parts        jsonb        NOT NULL DEFAULT '[]',
  obsolete     jsonb        NOT NULL DEFAULT '[]',
  archived_at  timestamptz,
  verified_at  timestamptz,
  PRIMARY KEY (app_id, day)
);
COMMENT ON TABLE archived_days IS 'Days (UTC) of apps with what the archive has of them. A row outlives its app until its objects are removed.';
COMMENT ON COLUMN archived_days.counted IS 'Events of the day by its counts when it was archived: another count says that it has changed. -1: it has changed otherwise.';
COMMENT ON COLUMN archived_days.parts IS 'The objects: [{"key", "events", "bytes", "sha256", "digest", "firstAt", "lastAt", "groups", "footer"}]; groups as in archived_parts.';
COMMENT ON COLUMN archived_days.obsolete IS 'Keys of objects that are not, or no longer, parts, and may be there.';
COMMENT ON COLUMN archived_days.archived_at IS 'NULL: an attempt has begun and none has ended.';

-- Every process drops what it remembers of a row when that row changes, whoever changed it.
-- The payload is the table's name: such changes are rare, and a cache that starts again is cheap.
CREATE FUNCTION notify_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('tidemark_changes', TG_TABLE_NAME);
  RETURN NULL;
END $$;

CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON apps
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
-- A suspension changes what cached tokens may read.
CREATE TRIGGER notify_change AFTER UPDATE OF suspended_at ON users
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON group_grants
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
-- A role that is taken away ends what was made by it.
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON app_members
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON event_types
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF name, expires_at, revoked_at ON resource_tokens
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
-- Not when violations are counted: every process drops what it has cached of types.
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF mode, digest, suspended_at ON type_schemas
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF generation, removed_at ON declared_fields
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
DO $$
DECLARE
  changed text;
BEGIN
  FOREACH changed IN ARRAY '{app_limits,browser_keys,logging_tokens,redaction_rules,resource_token_apps,retention_rules,shares}'::text[] LOOP
    EXECUTE format('CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON %I
                      FOR EACH STATEMENT EXECUTE FUNCTION notify_change()', changed);
  END LOOP;
END $$;
