-- Beside the previous release: yes
-- What reads of events need of their types, on the node of the app.
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
CREATE TABLE type_names (
  app_id     integer  NOT NULL,
  id         integer  NOT NULL,
  public_id  text     COLLATE "C" NOT NULL,
  name       text     COLLATE "C" NOT NULL,
  PRIMARY KEY (app_id, id)
);
SELECT create_distributed_table('type_names', 'app_id', colocate_with => 'events');
INSERT INTO type_names (app_id, id, public_id, name) SELECT app_id, id, public_id, name FROM event_types;

-- With the type, or not at all: while the node of its app is away, an app gets no new types.
CREATE FUNCTION copy_type_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO type_names (app_id, id, public_id, name) VALUES (NEW.app_id, NEW.id, NEW.public_id, NEW.name)
  ON CONFLICT (app_id, id) DO UPDATE SET public_id = excluded.public_id, name = excluded.name;
  RETURN NULL;
END $$;
CREATE TRIGGER copy_type_name AFTER INSERT OR UPDATE OF public_id, name ON event_types
  FOR EACH ROW EXECUTE FUNCTION copy_type_name();
