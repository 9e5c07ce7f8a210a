"""Words that stand together in a site's menus, and in advertisements: lists by language, as sets of hashes.

One of these words says nothing: a sentence may hold any of them. What is counted is where several stand side by side,
see `measures.py`. A word of a script without spaces is one letter, so there the lists hold pairs of letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from datamask.quality.batch_words import BatchWords, mix_bits
from datamask.quality.character_ngrams import PAIR
from datamask.quality.inner_loops import within
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
    "en": """affordable amazing bargain best bestseller bonus buy call cheap cheapest clearance click coupon
        coupons deal deals delivery discount discounts exclusive fast free gift guarantee guaranteed hot hurry
        instant limited loan loans lowest luxury money now offer offers order outlet pills premium price prices
        pricing promo promotion purchase quote rates sale sales satisfaction save savings sell shipping special
        spins stock today wholesale win warranty girls girl women meet chat local""",
    "de": """angebot angebote billig bestellen bestpreis einkaufen einmalig frauen girls gratis günstig günstige
        günstigen günstiger gutschein jetzt kaufen kontaktanzeigen kostenlos kostenlose lieferung partnersuche
        preis preise preiswert rabatt rabatte reduziert schnäppchen sexkontakte sofort sonderangebot sparen
        versandkostenfrei vögeln""",
    "fr": """achat acheter bon cher chers cadeau commandez femmes gratuit gratuite gratuitement livraison
        meilleur meilleurs moins offre offres prix profitez promo promotion promotions rencontre rencontres
        remise réduction soldes vente""",
    "es": """barato baratas baratos compra comprar citas chicas contactos descuento descuentos envío gratis
        mejor mejores mujeres oferta ofertas precio precios promoción rebajas solteras tienda venta putas
        escorts""",
    "pt it": """barato comprar compre desconto frete garotas grátis mulheres oferta ofertas preço preços
        promoção venda acompanhantes acquista acquistare comprare donne economici gratis incontri offerta
        offerte prezzi prezzo ragazze saldi sconti sconto spedizione vendita""",
    "nl nordic": """aanbieding aanbiedingen bestel bestellen geile goedkoop goedkope gratis kopen korting koop
        prijs prijzen seksi sexdate vrouwen verzending billig billiga billige bestil dejting erbjudande fri köp
        köpa køb kjøp pris priser rabatt rea tilbud treffit halpa hinta hinnat ilmainen osta tarjous""",
    "pl cs": """anonse cena ceny darmowa darmowe dostawa kup kupić najlepsze najtańsze oferta okazja promocja
        promocje rabat randki seks sprzedaż tanie tanio wyprzedaż zniżka akce ceník doprava koupit levné levně
        nabídka seznamka sleva slevy výprodej zdarma""",
    "tr ro hu id vi": """alışveriş bedava bahis bonus escort fiyat fiyatı fiyatları indirim kampanya kargo satın
        satılık sohbet ucuz cumpără gratuit ieftin livrare oferte preț prețuri reducere reduceri akció ár árak
        ingyenes kedvezmény olcsó rendelés szállítás vásárlás bandar beli diskon gratis harga judi jual murah
        promo bán chất giá mua rẻ""",
    "ru uk bg": """акция акции бесплатно бесплатная бонус выгодно девушки доставка заказ заказать знакомства
        казино купить кредит недорого низкие низким онлайн порно проститутки распродажа секс скидка скидки
        скидкой стоимость товары цена цене цены займ ставки безкоштовно знижки купити ціна ціни безплатна евтини
        купи отстъпка цени""",
    "ar fa he hi": """أسعار ارخص افضل اسعار تخفيضات توصيل خصم سعر شراء عروض مجانا ارزان تخفیف خرید رایگان فروش
        قیمت ارسال מבצע מחיר משלוח הנחה खरीदें मुफ्त सेक्स कीमत ऑफर छूट""",
    "zh": """优惠 優惠 折扣 免费 免費 价格 價格 购买 購買 特价 特價 促销 促銷 包邮
        代购 彩票 博彩 赌场 娱乐 色情 成人 裸聊 开户 注册 平台 官网 棋牌 投注 百家 六合
        快三 约炮 贷款 批发 厂家 报价 直销""",
    "ja": """激安 格安 送料 無料 価格 通販 販売 特価 購入 割引 人気 新品 中古 即日
        出会 風俗 財布 偽物 楽天 最安""",
    "ko": """할인 무료 가격 구매 판매 최저가 특가 이벤트 배송 카지노 토토 바카라 출장
        성인 대출 쿠폰""",
}


_BITS = 16


@dataclass(frozen=True)
class Lexicon:
    """A list's words and its pairs of letters, (n,) uint64 ascending."""

    words: np.ndarray
    pairs: np.ndarray

    @cached_property
    def _slots(self) -> tuple[np.ndarray, np.ndarray]:
        """(2**_BITS,) bool: the first bits that words, and that pairs have."""
        return _slots(self.words), _slots(self.pairs)

    def held(self, words: BatchWords) -> np.ndarray:
        """(tokens,) bool: the tokens that are of the list."""
        found = _within(self.words, self._slots[0], words.hashes)
        single = np.flatnonzero(words.kinds & SINGLE)
        single = single[single + 1 < len(words.start)]
        if len(single):
            first = single[
                _within(self.pairs, self._slots[1], mix_bits(words.hashes[single] * PAIR + words.hashes[single + 1]))
            ]
            found[first] = found[first + 1] = True
        return found


def _slots(ascending: np.ndarray) -> np.ndarray:
    slots = np.zeros(1 << _BITS, dtype=bool)
    slots[(ascending >> np.uint64(64 - _BITS)).astype(np.int64)] = True
    return slots


def _within(ascending: np.ndarray, slots: np.ndarray, values: np.ndarray) -> np.ndarray:
    found = np.empty(len(values), bool)
    within(ascending, slots, np.uint64(64 - _BITS), values, found)
    return found


@cache
def lexicon(kind: str) -> Lexicon:
    """Of "menus", "notices" or "adverts"."""
    lists = {"menus": MENUS, "adverts": ADVERTS, "notices": NOTICES}[kind]
    words = BatchWords(sorted({word for words in lists.values() for word in words.split()}))
    size = np.diff(words.first)
    one, two = words.first[:-1][size == 1], words.first[:-1][size == 2]
    return Lexicon(np.unique(words.hashes[one]), np.unique(mix_bits(words.hashes[two] * PAIR + words.hashes[two + 1])))
