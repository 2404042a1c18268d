-- Beside the previous release: yes
-- Weekly digests of boards, beside those of apps.

ALTER TABLE digests
  ALTER COLUMN app_id DROP NOT NULL,
  ADD COLUMN board_id integer REFERENCES boards ON DELETE CASCADE,
  ADD CONSTRAINT digests_of_one CHECK (num_nonnulls(app_id, board_id) = 1),
  ADD CONSTRAINT digests_of_board UNIQUE (board_id, user_id);
COMMENT ON COLUMN digests.board_id IS 'A digest is of an app or of one of its boards: the other one is null.';
