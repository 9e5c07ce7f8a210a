"""Words that stand together in a site's menus, and in advertisements: lists by language, as sets of hashes.

One of these words says nothing: a sentence may hold any of them. What is counted is where several stand side by side,
see `measures.py`. A word of a script without spaces is one letter, so there the lists hold pairs of letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from datamask.hash_sets import set_of
from datamask.quality.batch_words import BatchWords
from datamask.quality.character_ngrams import PAIR
from datamask.quality.inner_loops import within
from datamask.quality.page_layout import mix_bits
from datamask.quality.word_tables import SINGLE

MENUS = {
    "en": """about accept account advertise advertisement all archive archives blog browse careers cart
        categories category checkout click comment comments contact content cookie cookies copyright disclaimer
        download email events facebook faq faqs feed feedback follow footer forgot forum gallery google help
        here home instagram job jobs language link linkedin links list listing log login logout main map members
        menu more navigation newsletter next online page partners password photos pinterest policies policy
        popular posted press previous print privacy products profile read recent register related reply report
        reserved resources results returns reviews rights rss save search settings share shipping shop sidebar
        sign signup site sitemap skip sponsored store submit subscribe support tag tags terms toggle top
        trending tweet twitter update us username video videos view watch website whatsapp wishlist youtube""",
    "de": """abmelden abonnieren agb aktuelles anmelden anmeldung anzeige artikel bilder datenschutz
        datenschutzerklärung drucken einloggen einstellungen empfehlen facebook folgen forum galerie hilfe
        impressum inhalt jobs kategorien kommentar kommentare kontakt konto kundenkonto mediadaten mehr
        merkzettel menü merken navigation newsletter nutzungsbedingungen passwort produkte registrieren seite
        shop sitemap startseite suche suchen teilen termine themen überspringen versand verwandte video videos
        warenkorb weiter weiterlesen werbung widerruf zurück""",
    "fr": """abonner abonnez accéder accueil actualités aide article articles boutique catégories commentaire
        commentaires compte conditions confidentialité connecter connexion contact contactez découvrir
        déconnexion imprimer inscription inscrire légales lire mentions menu newsletter navigation page panier
        partager plan précédent produits publicité recherche rechercher réseaux rubriques site suivant suivez
        télécharger utilisateur vidéo vidéos voir""",
    "es": """acceder anterior aviso ayuda blog buscar búsqueda carrito categorías comentario comentarios
        compartir condiciones contacto contáctenos contraseña cookies cuenta descargar entrar imprimir iniciar
        inicio legal leer menú noticias página política privacidad productos publicidad quiénes redes
        registrarse registro resultados secciones sesión siguiente síguenos sitio somos suscribirse suscríbete
        tienda usuario ver vídeo vídeos""",
    "pt": """ajuda anterior assine buscar cadastre cadastro carrinho categorias comentário comentários
        compartilhar compartilhe conta contato contactos cookies entrar entre facebook imprimir início
        institucional leia login loja menu minha notícias página pesquisar política privacidade produtos próximo
        publicidade quem redes saiba seguinte seguir senha siga site somos termos vídeos""",
    "it": """abbonati accedi account aiuto area carrello categorie cerca chi commenti commento condividi
        contatti contattaci cookie disconnetti iscriviti leggi login menu negozio newsletter note notizie pagina
        precedente prodotti pubblicità registrati ricerca scarica seguici servizi siamo sito stampa successivo
        termini utente video""",
    "nl": """aanmelden abonneren account bekijk contact delen deel home inloggen klantenservice lees menu nieuws
        nieuwsbrief overzicht privacybeleid privacyverklaring reacties reageer registreren vacatures volgende
        voorwaarden vorige webshop winkelwagen zoek zoeken""",
    "pl": """aktualności czytaj dalej dodaj drukuj facebook forum galeria główna hasło kategorie komentarz
        komentarze konto kontakt koszyk koszyka mapa menu nas newsletter następna poprzednia polityka
        prywatności regulamin reklama rejestracja serwis sklep strona strony szukaj udostępnij więcej wyszukaj
        zaloguj zarejestruj zobacz""",
    "cs": """další domů hledat heslo kategorie komentáře kontakt kontakty košík mapa menu nákupní novinky
        obchodní odhlásit podmínky předchozí přihlásit přihlášení registrace reklama sdílet stránka stránky úvod
        více vyhledávání""",
    "nordic": """anmeld annonce annonser bli del dela etusivu facebook forside föregående haku hem hjelp hjem
        hjälp jaa kassa kategoriat kategorier kirjaudu kommentarer kommentit kontakt kontakta kundservice kurv
        köpvillkor logg logga läs læs lue lisää meny mer mere neste nyheder nyheter nyhetsbrev nästa om ota oss
        ostoskori personvern seuraava sivukartta sök søg søk tilaa tilbage valikko varukorg vilkår yhteystiedot
        yhteyttä uutiset""",
    "ro hu": """acasă autentificare cautare caută citește coș comentarii contul despre distribuie meniu parolă
        politica știri termeni belépés bejelentkezés elérhetőség főoldal hírek hírlevél hozzászólás kapcsolat
        keresés kosár megosztás regisztráció rólunk tovább""",
    "tr": """abone ana anasayfa arama ara bize çerez devamı facebook favorilere giriş gizlilik haberler
        hakkımızda hesabım iletişim kayıt kategoriler kullanıcı menü oku önceki paylaş reklam sayfa sepet sepete
        sepetim sonraki şifre takip üye ürünler video yardım yazdır yorum yorumlar""",
    "id vi": """bagikan berita beranda cari daftar hubungi kami kategori keranjang komentar masuk selengkapnya
        situs tentang unduh bạn bình chia chủ đăng giỏ hàng hệ kiếm ký liên luận mục nhập sẻ tìm tin trang xem""",
    "ru uk bg": """авторизация больше видео вход войти все выход главная далее добавить забыли запомнить
        избранное карта каталог категории комментарии комментарий контакты корзина корзину меню назад новости
        новостей обратная ответить пароль поделиться подписаться подробнее поиск пользователь правила
        регистрация реклама сайта скачать следующая соглашение статьи теги услуги форум читать вхід головна
        кошик новини пошук реєстрація контакти начало търсене вход новини контакти количка още""",
    "ar fa he hi": """الرئيسية اتصل بنا تسجيل الدخول بحث البحث المزيد اقرأ القائمة سياسة الخصوصية شروط الاستخدام
        التعليقات تعليق مشاركة شارك اشترك خانه تماس جستجو ورود ثبت نام ادامه مطلب دانلود نظر نظرات اشتراک צור
        קשר חיפוש התחבר הרשמה ראשי תגובות שתף होम खोजें लॉगिन संपर्क शेयर टिप्पणी और पढ़ें""",
    "zh": """首页 首頁 登录 登錄 登入 注册 註冊 搜索 搜尋 菜单 选单 联系 聯繫 聯絡
        关于 關於 隐私 隱私 版权 版權 下载 下載 评论 評論 留言 分享 收藏 更多 导航 購物
        购物 会员 會員 客服 返回 点击 點擊 订阅 訂閱 广告 廣告 上一 下一 热门 熱門 推荐
        推薦 备案""",
    "ja": """検索 会員 お気 利用 規約 個人 問い ログ カー ホー トッ ペー メニ シェ
        コメ ニュ お問 合わ 一覧 次へ 前へ 続き 詳細 登録""",
    "ko": """로그인 회원가입 검색 메뉴 홈 공지사항 고객센터 이용약관 개인정보처리방침
        장바구니 댓글 공유 더보기 이전 다음 목록 문의 구독 바로가기 사이트맵""",
    "th": """หน ้า เข ้ สู ระ บบ ค้น""",
}
NOTICES = {
    "any": """© copyright newsletter rss facebook twitter instagram linkedin pinterest youtube whatsapp
        sitemap cookie cookies login logout faq wordpress""",
    "en": """disclaimer homepage password privacy reserved signup subscribe username webmaster""",
    "de": """abmelden anmelden anmeldung agb datenschutz datenschutzerklärung einloggen impressum startseite
        vorbehalten warenkorb weiterlesen widerruf""",
    "fr": """accueil confidentialité connecter connexion déconnexion inscription panier réservés abonnez""",
    "es pt it": """contraseña inicio privacidad registrarse reservados suscríbete suscribirse cadastre
        privacidade senha accedi carrello iscriviti riservati registrati carrito carrinho""",
    "nl nordic": """inloggen nieuwsbrief privacybeleid privacyverklaring voorbehouden winkelwagen webshop
        nyhetsbrev nyhedsbrev personvern varukorg kundservice kirjaudu ostoskori etusivu tietosuoja forside
        forsiden cookiepolitik persondatapolitik""",
    "pl cs ro hu tr": """zaloguj zarejestruj koszyk koszyka regulamin prywatności zastrzeżone přihlášení
        přihlásit košík vyhrazena autentificare confidențialitate rezervate bejelentkezés regisztráció
        hírlevél kosár giriş gizlilik sepet sepete sepetim saklıdır çerez""",
    "id vi": """beranda keranjang privasi selengkapnya""",
    "ru uk bg el": """войти авторизация регистрация корзина корзину защищены подписаться cookie-файлы
        реєстрація увійти кошик вход απορρήτου σύνδεση δικαιώματος""",
    "ar fa he hi": """الخصوصية محفوظة الدخول خصوصی ورود הרשמה התחבר שמורות लॉगिन गोपनीयता""",
    "zh ja ko th": """首页 首頁 登录 登錄 登入 注册 註冊 版权 版權 隐私 隱私 备案 订阅 訂閱 検索 会員 規約 ログ
        로그인 회원가입 이용약관 개인정보처리방침 장바구니 구독""",
}
ADVERTS = {
    "any": """viagra cialis levitra xanax tramadol casino casinos poker blackjack roulette jackpot baccarat
        slots togel slot gacor betting bookmaker replica rolex gucci prada vuitton escort escorts porn porno
        pornstar porntube xxx sex sexy sexcam webcam webcams milf hentai fetish bdsm blowjob cum cock dick pussy
        fuck fucking fucked anal tits boobs nude nudes naked horny hookup hookups dating singles flirt onlyfans
        camgirl camgirls massage erotic erotik erotica seo backlinks forex bitcoin crypto payday""",
}


@dataclass(frozen=True)
class Lexicon:
    """A list's words and its pairs of letters, each as `hash_sets.set_of` has them."""

    words: tuple[np.ndarray, np.ndarray]
    pairs: tuple[np.ndarray, np.ndarray]

    def held(self, words: BatchWords) -> np.ndarray:
        """(tokens,) bool: the tokens that are of the list."""
        found = within(*self.words, words.hashes)
        single = np.flatnonzero(words.kinds & SINGLE)
        single = single[single + 1 < len(words.start)]
        first = single[within(*self.pairs, mix_bits(words.hashes[single] * PAIR + words.hashes[single + 1]))]
        found[first] = found[first + 1] = True
        return found


@cache
def lexicon(kind: str) -> Lexicon:
    """Of "menus", "notices" or "adverts"."""
    lists = {"menus": MENUS, "adverts": ADVERTS, "notices": NOTICES}[kind]
    words = BatchWords(sorted({word for words in lists.values() for word in words.split()}))
    size = np.diff(words.first)
    one, two = words.first[:-1][size == 1], words.first[:-1][size == 2]
    return Lexicon(set_of(words.hashes[one]), set_of(mix_bits(words.hashes[two] * PAIR + words.hashes[two + 1])))
