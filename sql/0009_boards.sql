-- Beside the previous release: yes
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
