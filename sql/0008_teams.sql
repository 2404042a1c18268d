-- Beside the previous release: yes
-- Sign-in by an OIDC issuer: which identities are which accounts, and the access that an identity's groups give.

ALTER TABLE users ADD COLUMN break_glass boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN users.break_glass IS 'Whether the account may sign in by its password where OIDC_ONLY is set. Only the command line makes such accounts.';

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

-- A suspension changes what cached tokens may read.
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON group_grants
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
