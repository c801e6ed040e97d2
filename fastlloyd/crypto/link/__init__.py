"""Who a party is and how its links are protected: keys, roster, TLS, signatures."""
