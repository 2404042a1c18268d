-- Beside the previous release: yes
-- Wrong codes are counted for an account over all processes and restarts. The previous release does not count its own.
ALTER TABLE second_factors ADD COLUMN wrong_codes integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN second_factors.wrong_codes IS 'Wrong codes in a row, which a right one ends.';
