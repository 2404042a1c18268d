-- People: their accounts, sessions and links, what they may do in which app, and what was changed by whom.
--
-- Of everything that lets somebody in (sessions, links) only a SHA-256 is kept; of passwords an argon2id hash.

CREATE TABLE users (
  id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id        text        COLLATE "C" NOT NULL UNIQUE,
  email            text        NOT NULL,
  email_key        text        COLLATE "C" NOT NULL UNIQUE,
  password_hash    text        NOT NULL,
  email_proved_at  timestamptz,
  created_at       timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN users.email IS 'As it was typed; mail goes here.';
COMMENT ON COLUMN users.email_key IS 'In lower case and NFC: what tells one account from another.';
COMMENT ON COLUMN users.email_proved_at IS 'When its owner followed a link that was sent or handed over, or an operator made the account.';

-- Times of sessions and links are the service's, not the database's: their lifetimes are one clock's business.
CREATE TABLE sessions (
  digest        bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  user_id       integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at    timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL
);
CREATE INDEX sessions_of_user ON sessions (user_id);

-- One-time links. A sign-up waits in its link: there is no account, and nothing to learn, until the e-mail is proved.
CREATE TABLE account_links (
  digest         bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  purpose        text        NOT NULL CHECK (purpose IN ('setup', 'sign-up', 'prove-email', 'reset-password')),
  user_id        integer     REFERENCES users ON DELETE CASCADE,
  email          text,
  password_hash  text,
  proves_email   boolean     NOT NULL DEFAULT false,
  expires_at     timestamptz NOT NULL,
  CHECK (purpose = 'setup' OR (purpose = 'sign-up' AND email IS NOT NULL AND password_hash IS NOT NULL) OR user_id IS NOT NULL)
);
CREATE INDEX account_links_of_user ON account_links (user_id) WHERE user_id IS NOT NULL;
COMMENT ON COLUMN account_links.proves_email IS 'Whether who follows it has shown that the e-mail is theirs: it was sent there, or an operator handed it over.';

CREATE TABLE app_members (
  app_id    integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  user_id   integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  role      text        NOT NULL CHECK (role IN ('owner', 'maintainer')),
  added_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (app_id, user_id)
);
CREATE INDEX app_members_of_user ON app_members (user_id);

CREATE TABLE invitations (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  digest      bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  email       text        NOT NULL,
  email_key   text        COLLATE "C" NOT NULL,
  role        text        NOT NULL CHECK (role = 'maintainer'),
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  UNIQUE (app_id, email_key)
);

-- Who changed what. Rows outlive the app and the account that they tell of, hence no foreign keys.
CREATE TABLE audit_entries (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id   integer     NOT NULL,
  at       timestamptz NOT NULL DEFAULT now(),
  user_id  integer,
  actor    text        NOT NULL,
  action   text        NOT NULL,
  details  jsonb       NOT NULL
);
CREATE INDEX audit_entries_of_app ON audit_entries (app_id, id);
COMMENT ON COLUMN audit_entries.actor IS 'The e-mail that the account had then, or "command line".';

-- Apps whose events are still to be removed: the app itself is gone at once, its rows in the background.
CREATE TABLE deleted_apps (
  app_id      integer     PRIMARY KEY,
  deleted_at  timestamptz NOT NULL DEFAULT now()
);
