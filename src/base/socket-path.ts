/** The longest path of a Unix socket in bytes: sockaddr_un has 108 on Linux and 104 on macOS, including a final NUL. */
export const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107;
