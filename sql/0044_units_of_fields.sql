-- Beside the previous release: yes

-- How the numbers of a field are shown.
ALTER TABLE declared_fields ADD COLUMN unit text, ADD COLUMN decimals smallint;
COMMENT ON COLUMN declared_fields.unit     IS 'What the numbers are of, such as ms; NULL: not said.';
COMMENT ON COLUMN declared_fields.decimals IS 'Digits after the decimal point that are shown, 0 to 6; NULL: as many as the number needs.';
