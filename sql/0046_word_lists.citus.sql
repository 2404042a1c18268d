-- Beside the previous release: yes

COMMENT ON COLUMN apps.word_search IS 'Whether lists of the words of payloads are asked for. A cluster keeps none.';
