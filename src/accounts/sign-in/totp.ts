/** Codes that change every 30 seconds (RFC 6238), with the parameters that every authenticator app knows. */
import { Secret, TOTP } from 'otpauth';
import { encodeQR } from 'qr';
import type { Enrollment } from '../../api-types/answers.ts';

const STEP_SECONDS = 30;
const DIGITS = 6;
/** 160 bits, as RFC 4226 recommends. */
const SECRET_BYTES = 20;
/** Steps before and after the present one: clocks of phones are off, and typing takes time. */
const WINDOW = 1;
/** The quiet zone of ISO 18004, in modules. */
const QR_BORDER = 4;

/** The form of a code; apps show it in groups. */
export const TOTP_CODE = /^\d{6}$/;

/** A new secret in base32. */
export function createTotpSecret(): string {
  return new Secret({ size: SECRET_BYTES }).base32;
}

/**
 * The step that a code belongs to; null if it is not one of now. Compares in constant time.
 * @param now milliseconds since the Unix epoch
 */
export function stepOf(code: string, secret: string, now: number): number | null {
  const delta = totp(secret).validate({ token: code, timestamp: now, window: WINDOW });
  return delta === null ? null : Math.floor(now / 1_000 / STEP_SECONDS) + delta;
}

/** What an authenticator app takes: the address of the secret, and the same as a QR code. */
export function totpAddress(
  secret: string,
  label: { issuer: string; account: string },
): Pick<Enrollment, 'uri' | 'qr'> {
  const uri = totp(secret, label).toString();
  return { uri, qr: qrCode(uri) };
}

function totp(secret: string, label = { issuer: '', account: '' }): TOTP {
  return new TOTP({
    issuer: label.issuer,
    label: label.account,
    secret: Secret.fromBase32(secret),
    algorithm: 'SHA1',
    digits: DIGITS,
    period: STEP_SECONDS,
  });
}

function qrCode(text: string): Enrollment['qr'] {
  const rows = encodeQR(text, 'raw', { ecc: 'medium', border: QR_BORDER });
  let path = '';
  for (const [y, row] of rows.entries()) {
    for (let x = 0; x < row.length; x += 1) {
      const from = x;
      while (row[x] === true) x += 1;
      if (x > from) path += `M${from} ${y}h${x - from}v1H${from}z`;
    }
  }
  return { size: rows.length, path };
}
