-- Beside the previous release: yes
-- Logout tokens of the issuer that were used, so that each ends sessions once.

CREATE TABLE used_logout_tokens (
  digest      bytea        PRIMARY KEY CHECK (octet_length(digest) = 32),
  expires_at  timestamptz  NOT NULL
);
COMMENT ON TABLE used_logout_tokens IS 'SHA-256 of the claim "jti" of logout tokens, for as long as the token would be accepted.';
