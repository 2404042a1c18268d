/** The most common passwords of eight to fourteen characters, from public lists of leaked ones; compared in lower case. */
const LIST = `
123456789 12345678 1234567890 password password1 password12 password123 passw0rd p@ssw0rd p@ssword qwertyuiop
qwerty123 qwerty12 qwerty1234 qwerty12345 1q2w3e4r 1q2w3e4r5t 1q2w3e4r5t6y 1qaz2wsx 1qaz2wsx3edc q1w2e3r4 q1w2e3r4t5
zaq12wsx !qaz2wsx zxcvbnm1 zxcvbnm123 asdfghjkl asdfghjk asdfasdf asdf1234 abcd1234 abc12345 abc123456 a1234567 a12345678
a123456789 aa123456 aa12345678 abcdefgh abcdefg1 abcdefghi 11111111 111111111 1111111111 00000000 000000000 22222222
33333333 44444444 55555555 66666666 77777777 88888888 99999999 12341234 12344321 11223344 1122334455 112233445566
123123123 123321123 12312312 123454321 87654321 987654321 9876543210 0987654321 0123456789 01234567 147258369 159753456
741852963 789456123 963852741 31415926 19871987 20002000 iloveyou iloveyou1 iloveyou2 iloveyou12 princess princess1
sunshine sunshine1 football football1 baseball baseball1 basketball superman superman1 batman123 starwars starwars1
welcome1 welcome12 welcome123 welcome2 letmein1 letmein12 letmein123 trustno1 whatever whatever1 michelle jennifer
jonathan danielle victoria samantha elizabeth alexander alexandra benjamin christian christina patricia veronica
computer internet corvette mercedes maverick midnight mountain passport platinum redskins liverpool liverpool1 chelsea1
arsenal1 barcelona manchester juventus cocacola snoopy12 spongebob pokemon1 pokemon123 nintendo metallica slipknot
blink182 greenday eminem123 marlboro rockstar rainbow1 butterfly blessed1 jesus123 jesuschrist godisgood password!
password01 password2 password3 password11 password99 passwort passwort1 passwort123 hallo123 hallowelt schatzi1
sonnenschein fussball admin123 admin1234 admin12345 administrator root1234 rootroot adminadmin changeme changeme1
changeme123 default1 guest123 test1234 testtest test12345 testing1 testing123 temp1234 secret12 secret123 mypassword
login123 user1234 master123 monkey123 dragon123 shadow123 killer123 charlie1 jordan23 michael1 jessica1 nicole12
ashley12 hello123 hello1234 hellohello lovelove loveyou1 iloveu12 babygirl babygirl1 angel123 summer12 summer123
summer2020 summer2021 summer2022 summer2023 summer2024 summer2025 winter123 winter2020 winter2021 winter2022 winter2023
winter2024 winter2025 spring123 autumn123 qazwsxedc qazwsx123 qweasdzxc qweasd123 qwertyui qwer1234 asdfqwer
asdf12345 zxcv1234 1234qwer 123qweasd 123qwe123 1a2b3c4d a1b2c3d4 a1s2d3f4 aaaaaaaa aaaaaaaaaa xxxxxxxx samsung1
samsung123 google123 facebook facebook1 linkedin minecraft fortnite1 roblox123 pakistan pakistan123 india123 india@123
bangladesh srilanka vietnam1 anhyeuem mahalkita tequiero teamo123 contrasena azertyuiop azerty123 motdepasse bonjour1
doudou123 chocolat chouchou soleil123 wachtwoord welkom01 welkom123 geheim123 lol12345 loulou123 nothing1 something
blahblah trustme1 dontknow idontknow pass1234 pass12345 pass@123 admin@123 test@123 abcd@1234 abc@1234 p@ssw0rd1
p@ssw0rd123 pa55word pa55w0rd passw0rd1 pa$$w0rd pa$$word tidemark tidemark1 tidemark123
`;

export const COMMON_PASSWORDS: ReadonlySet<string> = new Set(LIST.trim().split(/\s+/));
