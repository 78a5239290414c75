CREATE TABLE invitations (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    code TEXT NOT NULL,
    url TEXT NOT NULL,
    inviter_uma TEXT NOT NULL,
    first_name TEXT,
    amount BIGINT,
    currency TEXT,
    status TEXT NOT NULL,
    invitee_uma TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    claimed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT invitations_pkey PRIMARY KEY (id),
    CONSTRAINT invitations_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES platforms (id),
    CONSTRAINT invitations_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES customers (id),
    CONSTRAINT invitations_code_key UNIQUE (code),
    CONSTRAINT invitations_amount_check CHECK (num_nulls(amount, currency) IN (0, 2) AND amount > 0 IS NOT FALSE),
    CONSTRAINT invitations_status_check CHECK (status IN ('PENDING', 'CLAIMED', 'CANCELLED')),
    CONSTRAINT invitations_claimed_check CHECK ((status = 'CLAIMED') = (claimed_at IS NOT NULL) AND (status = 'CLAIMED') = (invitee_uma IS NOT NULL))
);
CREATE INDEX invitations_platform_id_idx ON invitations (platform_id, id);
COMMENT ON TABLE invitations IS 'Invitations by which a customer invites a person to get a UMA address.';
COMMENT ON COLUMN invitations.id IS 'The invitation.';
COMMENT ON COLUMN invitations.platform_id IS 'Platform of the inviter.';
COMMENT ON COLUMN invitations.customer_id IS 'The inviter.';
COMMENT ON COLUMN invitations.code IS 'What the invitee presents; it cannot be guessed.';
COMMENT ON COLUMN invitations.url IS 'Page of the invitation.';
COMMENT ON COLUMN invitations.inviter_uma IS 'UMA address of the inviter.';
COMMENT ON COLUMN invitations.first_name IS 'First name of the inviter, as its platform says it.';
COMMENT ON COLUMN invitations.amount IS 'Amount that the inviter means to send after the claim, minor units; nothing is reserved.';
COMMENT ON COLUMN invitations.currency IS 'Currency of the amount.';
COMMENT ON COLUMN invitations.status IS 'PENDING, CLAIMED or CANCELLED; a PENDING one expires at `expires_at`.';
COMMENT ON COLUMN invitations.invitee_uma IS 'UMA address of the invitee; null: not claimed.';
COMMENT ON COLUMN invitations.created_at IS 'Time of creation.';
COMMENT ON COLUMN invitations.expires_at IS 'Time from which it cannot be claimed.';
COMMENT ON COLUMN invitations.claimed_at IS 'When it was claimed; null: not claimed.';

-- The invitee is a customer of any platform. Exactly one code is looked up, so that no platform can
-- list the invitations of another.
CREATE FUNCTION find_invitation(wanted text)
RETURNS SETOF invitations
LANGUAGE sql STABLE SECURITY DEFINER ROWS 1 AS $$
    SELECT i.* FROM invitations i WHERE i.code = wanted
$$;

-- The webhook goes to the platform of the inviter, whose outbox the platform of the invitee does not
-- see. Of two claims at once, the second waits and then finds the invitation claimed.
CREATE FUNCTION claim_invitation(wanted text, invitee text, claimed timestamptz, webhook_id uuid, resource json)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    claimed_one invitations%ROWTYPE;
BEGIN
    UPDATE invitations i SET status = 'CLAIMED', invitee_uma = invitee, claimed_at = claimed
    WHERE i.code = wanted AND i.status = 'PENDING' AND i.expires_at > claimed
    RETURNING i.* INTO claimed_one;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at)
    VALUES (webhook_id, claimed_one.customer_id, claimed_one.platform_id, 'INVITATION.CLAIMED',
        claimed_one.id, resource, claimed);
    RETURN true;
END $body$;
