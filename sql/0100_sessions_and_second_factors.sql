-- Beside the previous release: yes
-- What a list of sessions shows, which devices an account has signed in from, and codes as a second factor of a sign-in.
-- The previous release asks for no code: a second factor protects once every process runs this release.
ALTER TABLE sessions
  ADD COLUMN handle   text COLLATE "C",
  ADD COLUMN browser  text,
  ADD COLUMN system   text,
  ADD COLUMN address  text;
ALTER TABLE sessions ALTER COLUMN handle SET DEFAULT 'ses_' || left(replace(gen_random_uuid()::text, '-', ''), 20);
UPDATE sessions SET handle = DEFAULT;
ALTER TABLE sessions ALTER COLUMN handle SET NOT NULL;
CREATE UNIQUE INDEX sessions_by_handle ON sessions (handle);
COMMENT ON COLUMN sessions.handle IS 'The public id, which has nothing to do with the cookie. Not called so: the previous release joins this table with users, whose column that is.';
COMMENT ON COLUMN sessions.address IS 'Where the sign-in came from, as far as SESSION_ADDRESSES lets it be stored.';

CREATE TABLE known_devices (
  user_id       integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  digest        bytea        NOT NULL CHECK (octet_length(digest) = 32),
  last_seen_at  timestamptz  NOT NULL,
  PRIMARY KEY (user_id, digest)
);
COMMENT ON COLUMN known_devices.digest IS 'HMAC of account, browser, system and network, under a key that SECRET is the source of.';

CREATE TABLE second_factors (
  user_id     integer      PRIMARY KEY REFERENCES users ON DELETE CASCADE,
  sealed      bytea        NOT NULL,
  started_at  timestamptz  NOT NULL,
  enabled_at  timestamptz,
  last_step   bigint       NOT NULL DEFAULT 0
);
COMMENT ON COLUMN second_factors.sealed IS 'The secret of the codes (RFC 6238), sealed with AES-256-GCM for this account.';
COMMENT ON COLUMN second_factors.enabled_at IS 'NULL: set up and not confirmed by a code yet, so no sign-in asks for one.';
COMMENT ON COLUMN second_factors.last_step IS 'The step of the last accepted code: no code of this or an earlier one is accepted again.';

CREATE TABLE recovery_codes (
  user_id  integer  NOT NULL REFERENCES users ON DELETE CASCADE,
  digest   bytea    NOT NULL CHECK (octet_length(digest) = 32),
  PRIMARY KEY (user_id, digest)
);

-- Changes of an account, which belong to no app, have entries too.
ALTER TABLE audit_entries
  ALTER COLUMN app_id DROP NOT NULL,
  ADD COLUMN account_id integer,
  ADD CONSTRAINT audit_entries_of_app_or_account CHECK (app_id IS NOT NULL OR account_id IS NOT NULL);
CREATE INDEX audit_entries_of_account ON audit_entries (account_id, id) WHERE account_id IS NOT NULL;
COMMENT ON COLUMN audit_entries.account_id IS 'The account that was changed; NULL: an app was.';
