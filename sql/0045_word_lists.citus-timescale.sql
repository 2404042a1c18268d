-- Beside the previous release: yes

-- These engines keep no lists of words yet: an app may ask for them, and its payloads are read as before.
ALTER TABLE apps ADD COLUMN word_search boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN apps.word_search IS 'Whether lists of the words of payloads are kept.';
