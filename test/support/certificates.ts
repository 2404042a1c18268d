/** Certificates of an authority of our own, made by openssl in a temporary folder. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

export interface Certificate {
  /** Paths. */
  readonly certificate: string;
  readonly key: string;
}

export class CertificateAuthority {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async make(): Promise<CertificateAuthority> {
    const authority = new CertificateAuthority(await mkdtemp(join(tmpdir(), 'tidemark-ca-')));
    const { key, certificate } = authority.#paths('root');
    authority.#openssl(
      ...[
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2',
      ],
      ...['-subj', '/CN=test authority', '-keyout', key, '-out', certificate],
    );
    return authority;
  }

  /** The path of its own certificate. */
  get root(): string {
    return this.#paths('root').certificate;
  }

  /** @param names such as `DNS:localhost`; none for a client */
  async issue(commonName: string, names: readonly string[] = []): Promise<Certificate> {
    const { key, certificate } = this.#paths(commonName);
    const [request, extensions] = [`${certificate}.csr`, `${certificate}.ext`];
    await writeFile(extensions, names.length === 0 ? '' : `subjectAltName=${names.join()}\n`);
    this.#openssl(
      ...['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ...['-subj', `/CN=${commonName}`, '-keyout', key, '-out', request],
    );
    const signer = this.#paths('root');
    this.#openssl(
      ...['x509', '-req', '-in', request, '-CA', signer.certificate, '-CAkey', signer.key, '-CAcreateserial'],
      ...['-days', '2', '-extfile', extensions, '-out', certificate],
    );
    return { certificate, key };
  }

  async remove(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  #paths(name: string): Certificate {
    return { certificate: join(this.#folder, `${name}.crt`), key: join(this.#folder, `${name}.key`) };
  }

  #openssl(...parameters: string[]): void {
    execFileSync('openssl', parameters, { stdio: 'pipe' });
  }
}
