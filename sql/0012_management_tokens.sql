-- Beside the previous release: yes
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

-- Entries of the installation are neither an app's nor an account's.
ALTER TABLE audit_entries DROP CONSTRAINT audit_entries_of_app_or_account;
