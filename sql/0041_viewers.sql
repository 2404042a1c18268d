-- Beside the previous release: yes
-- Viewers: members who see an app and change nothing. The previous release takes them for maintainers, so nobody should be made
-- one before every process runs this release.
ALTER TABLE app_members
  DROP CONSTRAINT app_members_role_check,
  ADD CONSTRAINT app_members_role_check CHECK (role IN ('owner', 'maintainer', 'viewer'));
ALTER TABLE invitations
  DROP CONSTRAINT invitations_role_check,
  ADD CONSTRAINT invitations_role_check CHECK (role IN ('maintainer', 'viewer'));
